"""Sunmei: isolating and subject–verb–object, with classifiers, aspect particles and prenominal relatives."""

from trainables.corpora.grammar.description import Contrast, Language

SUNMEI = Language(
    name="sunmei",
    script="hangul",
    segments={"C": "g n d l m b s j c k t p h", "V": "a e i o u ə ɨ", "N": "n l m ŋ k"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "class": "human human animal flat long round",
        "aspect": "perfective perfective imperfective",
        "valency": "intransitive transitive | reporting",
    },
    lexicon={
        "noun human": "100 CVN CVCV CVNCV CVCVN CVNCVN",
        "noun animal": "80 CVN CVCV CVNCV CVCVN CVNCVN",
        "noun flat": "80 CVN CVCV CVNCV CVCVN CVNCVN",
        "noun long": "80 CVN CVCV CVNCV CVCVN CVNCVN",
        "noun round": "80 CVN CVCV CVNCV CVCVN CVNCVN",
        "verb intransitive": "100 CVN CVCV CVCVN",
        "verb transitive": "170 CVN CVCV CVCVN",
        "verb reporting": "8 CVN CVCV",
        "adjective": "120 CVN CVCV CVNCV",
        "adverb": "50 CVNCVN CVCVCV",
        "temporal perfective": "5 CVNCVCV",
        "temporal imperfective": "5 CVNCVCV",
        "coverb": "8 CV CVN",
        "numeral": "12 CV CVN",
        "demonstrative": "= ji ho",
    },
    paradigms={
        "classifier": (
            """
            human animal flat long round
             muŋ  mali   jaŋ  gal  bol
            """,
        ),
        "pronoun": (
            """
            human animal flat long round
             ta    tan   pe   sem   mom
            """,
        ),
        "negator": (
            """
            perfective imperfective
               mek         bu
            """,
        ),
        "marker": (
            """
            perfective imperfective
               lə          jə
            """,
        ),
    },
    rules={
        "episode": """
            4 introduction(class referent) resumption(class) assertion(class referent)
            3 introduction(class referent) resumption(class) resumption(class)
            2 assertion assertion
            1 question(class referent) resumption(class) assertion
        """,
        "introduction": """
            1 numeral classifier(class) noun(class referent) predicate .
            1 numeral classifier(class) adjective 'dɨ' noun(class referent) predicate .
        """,
        "assertion": """
            4 plain(class referent)
            2 classified(class referent)
            2 relativised(class referent)
            3 negated(class referent)
            2 owning(class referent)
            2 dated(class referent)
            1 coordinated
            1 reported(class referent)
        """,
        "plain": "1 np(class referent) predicate .",
        "classified": "1 demonstrative classifier(class) noun(class referent) predicate .",
        "relativised": "1 demonstrative classifier(class) relative_clause noun(class referent) predicate .",
        "relative_clause": "1 verb(transitive) noun 'dɨ'",
        "negated": "1 np(class referent) negator(aspect) verb(transitive) marker(aspect) np .",
        "owning": "1 noun(class referent) verb(transitive) marker pronoun(class) 'dɨ' noun .",
        "dated": "1 temporal(aspect) np(class referent) verb(transitive) marker(aspect) np .",
        "coordinated": "1 np(protagonist) 'hə' np(companion) predicate .",
        "reported": "1 np(class referent) verb(reporting) , np predicate .",
        "resumption": """
            5 pronoun(class) predicate .
            2 pronoun(class) negator(aspect) verb(transitive) marker(aspect) np .
            1 pronoun(class) verb(transitive) marker pronoun(class) 'dɨ' noun .
        """,
        "question": "1 np(class referent) predicate 'ma' ?",
        "predicate": """
            3 verb(intransitive) marker
            2 adverb verb(intransitive) marker
            5 verb(transitive) marker np
            2 coverb noun verb(intransitive) marker
        """,
        "np": """
            4 noun(class referent)
            2 adjective 'dɨ' noun(class referent)
            2 numeral classifier(class) noun(class referent)
            1 demonstrative classifier(class) noun(class referent)
        """,
    },
    contrasts=(
        Contrast("classifier–noun agreement", "classified", "classifier", "class"),
        Contrast(
            "classifier–noun agreement across a relative clause",
            "relativised",
            "classifier",
            "class",
            attractor="relative_clause noun",
        ),
        Contrast("negator–aspect agreement", "negated", "negator", "aspect"),
        Contrast("possessive–antecedent agreement in class", "owning", "pronoun", "class"),
        Contrast("aspect and temporal adverb", "dated", "marker", "aspect"),
        Contrast("order of demonstrative and classifier", "classified", "demonstrative"),
        Contrast("order of verb and aspect particle", "negated", "verb"),
    ),
)
